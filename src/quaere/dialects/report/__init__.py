"""Research reports, the rubrics they are assessed by, and the assessments: SCORE."""
