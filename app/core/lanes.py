"""Lanes: everything that an event's visibility depends on, and what a reader sees of them."""

from typing import Final

from msgspec import Struct

from app.core.branch import is_visible_from


class Lane(Struct, frozen=True):
    """Where an event stands. Events of one lane are seen by the same readers.

    ``None`` scope is a scope of its own: it sees only itself, and no scope sees it.
    """

    isolation_scope: str | None = None
    branch: str = ""
    #: Names of the ``name@id`` segments of the branch whose id is that of an earlier call: the
    #: messages inside a tool call. Decided at append.
    tool_names: tuple[str, ...] = ()
    #: The only node that sees the event (a user message addressed to a workflow node), else empty.
    node_path: str = ""


#: Where events without scope and branch stand.
ROOT_LANE: Final = Lane()


class Reader(Struct, frozen=True, kw_only=True):
    """For whom a compile is made."""

    #: Empty: no one in particular; nothing is foreign then.
    agent: str = ""
    branch: str = ""
    isolation_scope: str | None = None
    node_path: str = ""

    def sees(self, lane: Lane) -> bool:
        """Tell whether the reader may see events of this lane (``spec/ADK.md`` B.3 a, b, c, f)."""
        return (
            lane.isolation_scope == self.isolation_scope
            and is_visible_from(self.branch, lane.branch)
            and lane.node_path in ("", self.node_path)
            and (bool(self.branch) or all(name == self.agent for name in lane.tool_names))
        )

    def owns(self, lane: Lane) -> bool:
        """Tell whether this is the reader's own lane, where its replies stand."""
        return lane.isolation_scope == self.isolation_scope and lane.branch == self.branch


#: A reader who is no one in particular and stands at the root.
ANYONE: Final = Reader()
