"""What ``barge_in`` knows and does about voices over the bot: decisions, replies, voice, words, the floor."""
