"""All is trained and saved; then comes a mistake."""

#: plain
print("final accuracy", undefined)
