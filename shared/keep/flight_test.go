package keep

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// hangar is work that ends when a test says so.
type hangar struct {
	*Flights[string]
	t     *testing.T
	began int
	land  chan string
}

func newHangar(t *testing.T) *hangar {
	return &hangar{NewFlights[string](time.Minute), t, 0, make(chan string)}
}

// wait joins the work for that long, and returns how it ended and the steps.
func (h *hangar) wait(d time.Duration) (result string, steps []string, err error) {
	f, err := h.Join("key", nil, func(ctx context.Context, say func(string)) (string, error) {
		h.began++
		say("start")
		say("taxi")
		say("taxi")
		select {
		case result := <-h.land:
			say("land")
			return result, nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	})
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithTimeout(h.t.Context(), d)
	defer cancel()
	result, err = f.Wait(ctx, func(step string) { steps = append(steps, step) })
	return result, steps, err
}

func (h *hangar) mustBe(want string, began int) {
	h.t.Helper()
	if got, _, err := h.wait(time.Hour); got != want || err != nil || h.began != began {
		h.t.Errorf("%q, %v after %d began; want %q after %d", got, err, h.began, want, began)
	}
}

func (h *hangar) mustLeave() {
	h.t.Helper()
	if _, _, err := h.wait(0); !errors.Is(err, ErrUnderWay) {
		h.t.Errorf("%v", err)
	}
}

func TestCallersJoinWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHangar(t)
		_, all, _ := h.wait(time.Second)
		type ended struct {
			result string
			steps  []string
		}
		joined := make(chan ended)
		for range 2 {
			go func() {
				result, steps, _ := h.wait(time.Hour)
				joined <- ended{result, steps}
			}()
		}
		synctest.Wait()
		h.land <- "here"
		for range 2 {
			if got := <-joined; got.result != "here" || !slices.Equal(got.steps, []string{"taxi", "land"}) {
				t.Errorf("who joins gets %+v", got)
			}
		}
		if !slices.Equal(all, []string{"start", "taxi"}) || h.began != 1 {
			t.Errorf("the first caller got the steps %q; the work began %d times", all, h.began)
		}
	})
}

// A result waits for each caller who left, once, and not longer than it is fresh.
func TestAResultWaitsForItsCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHangar(t)
		h.mustLeave()
		h.mustLeave() // comes back, and leaves again
		first := make(chan string)
		go func() { result, _, _ := h.wait(time.Hour); first <- result }()
		synctest.Wait()
		h.mustLeave() // a second caller
		h.land <- "one"
		if got := <-first; got != "one" {
			t.Errorf("%q", got)
		}
		h.mustBe("one", 1)

		h.mustLeave() // all have the result: the work begins anew
		h.land <- "two"
		<-time.After(time.Minute + time.Second)
		if about, _ := h.Find("key"); about != nil {
			t.Errorf("an old result is about %v", about)
		}
		go func() { h.land <- "three" }()
		h.mustBe("three", 3)

		h.mustLeave()
		h.land <- "four"
		synctest.Wait()
		h.Forget("key")
		go func() { h.land <- "five" }()
		h.mustBe("five", 5)
	})
}

func TestALargeResultIsNotKeptForCallersWhoLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHangar(t)
		h.Drop = func(result *string) { *result = "dropped" }
		h.mustLeave()
		h.land <- "large"
		synctest.Wait()
		h.mustBe("dropped", 1)
		go func() { h.land <- "large" }()
		h.mustBe("large", 2)
	})
}

func TestWorkIsBoundedAndEndsWithItsOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHangar(t)
		h.Most = 1
		h.mustLeave()
		if _, err := h.Join("other", nil, nil); !errors.Is(err, ErrFull) {
			t.Errorf("beyond the bound: %v", err)
		}
		closed := errors.New("closed")
		h.Close(closed)
		for range 2 { // the work's own end, and no other one
			if _, _, err := h.wait(time.Hour); !errors.Is(err, closed) || h.began != 1 {
				t.Errorf("%v after %d began", err, h.began)
			}
		}
	})
}
