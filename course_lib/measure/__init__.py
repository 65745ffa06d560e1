"""What real ranks take: single messages, fused all-reduces, whole training steps."""
