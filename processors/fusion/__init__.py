"""From what specialists report to the words that a turn is made of."""
