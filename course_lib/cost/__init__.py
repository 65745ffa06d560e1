"""What training costs: time, bytes on the wire, memory."""
