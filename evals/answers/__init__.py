"""Answers from documents: questions with known answers, asked by text and aloud."""
