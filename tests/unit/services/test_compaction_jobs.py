"""What the payload of a job asks for."""

from app.services.compaction_jobs import Asked


def test_a_payload_is_read_back_as_it_was_asked() -> None:
    asked = Asked(mode="range", from_seq=3, keep_last=2, reason="asked", window_tokens=9_000)
    assert Asked.of(asked.payload) == asked
    assert None not in asked.payload.values()


def test_what_a_later_release_asks_beside_is_passed_over() -> None:
    # Both run side by side while a deploy rolls, and either may claim the job.
    assert Asked.of({"reason": "threshold", "of_tomorrow": 1}) == Asked(reason="threshold")
