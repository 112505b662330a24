"""Echo control on simulated speakerphones: the remaining echo of the bot, and the caller's voice."""
