"""Parts of ``barge_in`` for voices over the bot: decisions, replies, voice, words, the floor."""
