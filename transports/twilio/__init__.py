"""Telephone calls: Twilio's media streams."""
