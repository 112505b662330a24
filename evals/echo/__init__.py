"""Echo control on simulated speakerphones: what is left of the bot's voice, and what of the caller's."""
