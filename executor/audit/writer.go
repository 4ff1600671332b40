package audit

import (
	"context"
	"time"
)

// Run writes what is recorded until ctx ends, and then for at most a second what is left. A
// write that hangs longer is left behind.
func (l *Log) Run(ctx context.Context) error {
	if l == nil {
		return nil
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.write(ctx)
	}()
	<-ctx.Done()
	select {
	case <-ended:
	case <-time.After(closeTime):
	}
	return nil
}

// write writes the queue to the file until ctx ends, then once more what is left.
func (l *Log) write(ctx context.Context) {
	defer l.file.close()
	summary := time.NewTicker(summaryEvery)
	defer summary.Stop()
	var since time.Time // when the file began to fail
	var retry <-chan time.Time
	for done := false; !done; {
		wake := l.queue.wake
		if retry != nil {
			wake = nil
		}
		select {
		case <-wake:
		case <-retry:
		case <-summary.C:
			l.summarise()
		case <-ctx.Done():
			l.summarise()
			l.put(record{Event: eventStopped})
			done = true
		}
		err := l.flush()
		since, retry = l.report(since, err), nil
		if err != nil {
			retry = time.After(retryPause)
		}
	}
}

// flush writes what the queue holds, in order.
func (l *Log) flush() error {
	for {
		next := l.queue.first()
		if next == nil {
			l.stalled.Store(false)
			return nil
		}
		if err := l.file.append(next.text); err != nil {
			l.stalled.Store(true)
			l.queue.blame(err)
			return err
		}
		l.queue.pop()
	}
}

// report tells the executor's own log when the file begins to fail and when it works again.
// since is when it began, zero if it works.
func (l *Log) report(since time.Time, err error) time.Time {
	switch {
	case err != nil && since.IsZero():
		l.cfg.Log.Warn("the audit log cannot be written; executions continue, and records wait in memory", "component", "audit", "path", l.cfg.Path, "err", err)
		return time.Now()
	case err == nil && !since.IsZero():
		l.cfg.Log.Warn("the audit log is written again", "component", "audit", "path", l.cfg.Path, "dur", time.Since(since))
		return time.Time{}
	}
	return since
}

// summarise counts the turned-away requests that were not recorded and no line counts yet.
func (l *Log) summarise() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.countLocked()
	l.counted = 0
}

func (l *Log) countLocked() {
	if l.unrecorded.count == 0 {
		return
	}
	l.put(l.unrecorded.record("too many signed requests that were turned away: repeated, outdated or over the rate limit"))
	l.counted += l.unrecorded.count
	l.unrecorded = omission{}
}
