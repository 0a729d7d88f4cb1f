"""What the tests of the app share."""

from harness.app_fixtures import composed, full_disk, result

__all__ = ["composed", "full_disk", "result"]
