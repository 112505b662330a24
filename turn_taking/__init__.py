"""Turn taking: pure policies that turn events and times into decisions about the floor, without a clock."""
