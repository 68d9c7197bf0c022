"""`/v1/plans/{plan_id}/events`: how far a search is, as server-sent events."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from bapipe_api.access import Reader
from bapipe_api.dependencies import ServiceDep
from bapipe_api.events import event_stream
from bapipe_api.openapi import problems
from bapipe_api.routes.plans import PlanId, find

router = APIRouter(prefix="/v1/plans", tags=["plans"])

LastEventId = Annotated[
    str | None,
    Header(alias="Last-Event-ID", description="the `id` of the last event that was received: only later ones are sent"),
]
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Events, each with the state, the phase, and, in seconds of the objective, the best plan so far "
        "(`incumbent_s`), what no plan can beat (`lower_bound_s`), and the `gap` between them.",
        "content": {
            "text/event-stream": {
                "schema": {
                    "type": "object",
                    "properties": {
                        "id": {"type": "string", "description": "the number of the event"},
                        "event": {"enum": ["progress", "end"]},
                        "data": {"type": "string", "contentMediaType": "application/json"},
                        "retry": {"type": ["string", "integer"]},
                    },
                }
            }
        },
    },
    204: {"description": "The last event was received before: there will be no more."},
}


@router.get(
    "/{plan_id}/events",
    summary="Follow a search",
    response_class=Response,
    responses={**STREAM, **problems(401, 403, 404, 503)},
)
async def plan_events(
    plan_id: PlanId, caller: Reader, service: ServiceDep, last_event_id: LastEventId = None
) -> Response:
    """The newest event whenever there is one, at most one a second; the last one, of type `end`, at once.

    An event's `id` is its number among the events of the job. What lies between two that are sent is not sent later:
    each says all that is known.
    """
    record = await run_in_threadpool(find, service, plan_id, caller.owner)
    after = int(last_event_id) if last_event_id and last_event_id.isdecimal() and len(last_event_id) < 10 else 0
    if record.finished and after >= record.last_event:
        return Response(None, 204)
    stream = event_stream(service.store, service.watcher, record.id, after)
    return StreamingResponse(stream, headers=HEADERS, media_type="text/event-stream")
