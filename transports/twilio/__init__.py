"""Phone calls over Twilio's media streams."""
