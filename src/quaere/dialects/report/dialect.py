"""Registers SCORE's report writer and its evaluator (rubrics and assessments) as a dialect."""

from __future__ import annotations

from quaere.dialects.report.assessment import Assessor
from quaere.dialects.report.protocol import ReportWriter
from quaere.dialects.report.rubric import RubricChooser
from quaere.dialects.roles import OpenAssessment, OpenRubric, OpenWriter, RoleDialect

WRITER: RoleDialect[OpenWriter] = RoleDialect(ReportWriter)
RUBRIC: RoleDialect[OpenRubric] = RoleDialect(RubricChooser)
ASSESSMENT: RoleDialect[OpenAssessment] = RoleDialect(Assessor)
