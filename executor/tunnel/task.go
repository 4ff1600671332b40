package tunnel

import (
	"errors"
	"net/http"
)

// Task is a function that runs in the background.
type Task struct {
	Done <-chan struct{} // closed when the function has returned
	err  error
}

// Start runs f in the background.
func Start(f func() error) *Task {
	done := make(chan struct{})
	t := &Task{Done: done}
	go func() {
		defer close(done)
		t.err = f()
	}()
	return t
}

// Err waits until the function has returned and returns its error.
func (t *Task) Err() error {
	<-t.Done
	return t.err
}

// Serve runs serve in the background. It returns when serve has failed or one of the
// channels is closed. After a graceful shutdown of the HTTP server it waits for the
// channels, because responses may still be in progress.
func Serve(serve func() error, a, b <-chan struct{}) *Task {
	task := Start(serve)
	done := task.Done
	for {
		select {
		case <-done:
			if !errors.Is(task.Err(), http.ErrServerClosed) {
				return task
			}
			done = nil
		case <-a:
			return task
		case <-b:
			return task
		}
	}
}
