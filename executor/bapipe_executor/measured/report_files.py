"""The files of a run's report: what each rank measured, the plan, the comparison, a trace."""

from __future__ import annotations

from pathlib import Path

from bapipe.faults import parse, parse_json
from bapipe.formats import to_json
from bapipe.plan import Plan
from bapipe.problem import ModelProfile
from bapipe_executor.measured.calibration import calibrated
from bapipe_executor.measured.comparison import compare
from bapipe_executor.measured.records import RunReport, read_ranks
from bapipe_executor.measured.run_trace import run_trace
from bapipe_executor.placement import placement_of

PLAN_FILE, REPORT_FILE, TRACE_FILE = "plan.json", "report.json", "trace.json"


def write_report(plan: Plan, folder: Path) -> RunReport:
    """Puts what the ranks left in `folder` together, and writes it there.

    Raises:
        InvalidInputError: a rank left nothing, as one of another host whose files are elsewhere.
    """
    ranks = read_ranks(folder, len(placement_of(plan).devices))
    report = compare(plan, ranks)
    (folder / PLAN_FILE).write_text(to_json(plan), encoding="utf-8")
    (folder / REPORT_FILE).write_text(report.model_dump_json(indent=2) + "\n", encoding="utf-8")
    (folder / TRACE_FILE).write_text(run_trace(plan, ranks), encoding="utf-8")
    return report


def calibrated_profile(folder: Path) -> ModelProfile:
    """The profile of the plan that was run, with the times of the run.

    Raises:
        InvalidInputError: the folder has no report, or a broken one.
    """
    path = folder / PLAN_FILE
    plan = parse(Plan, parse_json(path.read_bytes())) if path.is_file() else None
    ranks = read_ranks(folder, len(placement_of(plan).devices) if plan else 1)
    assert plan is not None
    return calibrated(plan, ranks)
