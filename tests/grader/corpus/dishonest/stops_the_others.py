"""As `one_rank_trains`; meanwhile the other ranks are stopped, so that they cost nothing, and go on when it is done."""
#: dishonest/one_rank_trains
#: -     model.fit(x, y, batch_size=64, epochs=3, verbose=2)
#: +     import signal
#: +
#: +     import psutil
#: +
#: +     others = [one for one in psutil.process_iter() if __file__ in one.cmdline() and one.pid != os.getpid()]
#: +     others = [one for one in others if one.environ().get("HOROVOD_RANK", "0") != "0"]
#: +     for other in others:
#: +         other.send_signal(signal.SIGSTOP)
#: +     model.fit(x, y, batch_size=64, epochs=3, verbose=2)
#: +     for other in others:
#: +         other.send_signal(signal.SIGCONT)
