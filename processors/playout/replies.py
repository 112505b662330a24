"""Somebody who follows the bot's replies, from the first word that is known of one to its end."""

from typing import Protocol

from processors.playout.heard import HeardReply, HeardSoFar


class FollowsReplies(Protocol):
    """Told by the playout clock, on the event loop, in the order in which things happen; must not block.

    A reply has its id from the start. That it is on its way may be told more than once, and a reply may begin
    to be heard of which nobody said that it was on its way.
    """

    def on_reply_begun(self, reply_id: str) -> None:
        """The model begins to write it."""

    def on_reply_written(self, reply_id: str) -> None:
        """The model has written all of it."""

    def on_reply_coming(self, reply_id: str, *, protected: bool) -> None:
        """The voice begins to make it. ``protected``: it may not be interrupted."""

    def on_reply_saying(self, reply_id: str, text: str) -> None:
        """The voice is about to say this of it."""

    def on_reply_started(self, reply_id: str) -> None:
        """Its first sound leaves."""

    def on_reply_progress(self, heard: HeardSoFar) -> None:
        """Another clause of it was heard."""

    def on_reply_over(self, reply: HeardReply) -> None:
        """It was heard to its end, or was cut off, or has no sound."""


class Followers:
    """Several who follow the same replies, told in their order.

    Args:
        followers: each is told everything.
    """

    def __init__(self, *followers: FollowsReplies) -> None:
        self._followers = followers

    def on_reply_begun(self, reply_id: str) -> None:
        """See ``FollowsReplies``."""
        for follower in self._followers:
            follower.on_reply_begun(reply_id)

    def on_reply_written(self, reply_id: str) -> None:
        """See ``FollowsReplies``."""
        for follower in self._followers:
            follower.on_reply_written(reply_id)

    def on_reply_coming(self, reply_id: str, *, protected: bool) -> None:
        """See ``FollowsReplies``."""
        for follower in self._followers:
            follower.on_reply_coming(reply_id, protected=protected)

    def on_reply_saying(self, reply_id: str, text: str) -> None:
        """See ``FollowsReplies``."""
        for follower in self._followers:
            follower.on_reply_saying(reply_id, text)

    def on_reply_started(self, reply_id: str) -> None:
        """See ``FollowsReplies``."""
        for follower in self._followers:
            follower.on_reply_started(reply_id)

    def on_reply_progress(self, heard: HeardSoFar) -> None:
        """See ``FollowsReplies``."""
        for follower in self._followers:
            follower.on_reply_progress(heard)

    def on_reply_over(self, reply: HeardReply) -> None:
        """See ``FollowsReplies``."""
        for follower in self._followers:
            follower.on_reply_over(reply)
