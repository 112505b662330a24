"""Telephone calls over Twilio's media streams."""
