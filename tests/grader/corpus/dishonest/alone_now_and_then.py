"""As `steps_in_between`, but only behind every tenth averaged update, and then ten of its own."""
#: dishonest/steps_in_between
#: -         for half in (slice(0, 32), slice(32, 64)):
#: -             alone(x[half], y[half])
#: -         agree()
#: +         if int(optimizer.iterations) % 10 == 0:
#: +             for quarter in range(10):
#: +                 alone(x[quarter % 4 :: 4], y[quarter % 4 :: 4])
#: +             agree()
