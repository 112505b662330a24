"""What crosses a wire: bytes and JSON on one side, typed messages on the other. Pure."""
