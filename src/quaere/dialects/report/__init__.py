"""The report dialect: research reports, the rubrics they are graded by, and their assessments (SCORE)."""
