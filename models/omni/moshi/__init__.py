"""Moshi, a speech model that hears and speaks at once: transformers' ``MoshiForConditionalGeneration``.

A unit is one frame of its codec: 80 ms, 1,920 samples at 24 kHz. In each one the caller's frame becomes
codes (``codec``), the large transformer takes a step on what was said and heard last, a text token and the
codes of the bot's next frame are drawn (``steps``, whose past is in ``window``), and a frame of audio is made
of them. ``speech`` decides whether it counts as speaking, ``words`` makes text of tokens, ``host`` loads the
weights once and ``engine`` is one conversation. Importing ``settings`` needs no torch.
"""
