"""HTTP routes that OpenAI's clients request: models, chat completions, speech and transcriptions."""
