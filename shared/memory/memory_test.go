package memory

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"colabrelay/shared/within"
)

// A turn past the last one is waited for, until another caller is done or the context ends.
func TestATurnIsWaitedForUntilTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns(2, 1)
		first, err := turns.Take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := turns.Take(t.Context()); err != nil {
			t.Fatal(err)
		}
		ended := errors.New("the call's time is over")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, ended)
		defer cancel()
		if _, err := turns.Take(ctx); !errors.Is(err, ended) {
			t.Errorf("a third turn of two: %v", err)
		}
		got := make(chan error)
		go func() { _, err := turns.Take(t.Context()); got <- err }()
		synctest.Wait()
		first()
		first() // which changes nothing more
		if err := <-got; err != nil {
			t.Error(err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), within.Limit)
		defer cancel()
		if _, err := turns.Take(ctx); err == nil {
			t.Error("done twice gave two turns")
		}
	})
}

// A thousand callers that take turns in their order, and hold them together, all get them.
func TestManyCallersOfSeveralTurnsDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outer, inner := NewTurns(2, 1), NewTurns(1, 1)
		var done atomic.Int64
		for range 1000 {
			go func() {
				ctx, end := Hold(t.Context())
				defer end()
				h, own := Of(ctx)
				if err := errors.Join(h.Take(ctx, outer), h.Take(ctx, inner), h.Take(ctx, inner)); err != nil || own {
					t.Errorf("%v, own %v", err, own)
				}
				<-time.After(time.Second)
				done.Add(1)
			}()
		}
		<-time.After(time.Hour)
		if done.Load() != 1000 {
			t.Errorf("%d of 1000 callers are done", done.Load())
		}
	})
}

// What an answer takes lasts until the outermost Hold ends.
func TestAHoldEndsWithItsOwnCaller(t *testing.T) {
	turns := NewTurns(1, 1)
	free := func() bool {
		got := turns.free.TryAcquire(1)
		if got {
			turns.free.Release(1)
		}
		return got
	}
	outer, endOuter := Hold(t.Context())
	inner, endInner := Hold(outer)
	h, _ := Of(inner)
	if err := h.Take(inner, turns); err != nil {
		t.Fatal(err)
	}
	endInner()
	if free() {
		t.Error("the inner end gave the turn back")
	}
	endOuter()
	if !free() {
		t.Error("the outer end did not")
	}
	if _, own := Of(t.Context()); !own {
		t.Error("without a Hold there is a Holding")
	}
}

func TestABudgetIsTakenUpToItsBound(t *testing.T) {
	b := NewBudget(100)
	if !b.Take(60) || !b.Take(40) || b.Take(1) {
		t.Error("100 bytes are not 100")
	}
	b.Return(40)
	if b.Take(41) || !b.Take(40) {
		t.Error("what was returned is not there, or more")
	}
}

// What the relay may take is the sum of what each kind of large thing may take.
func TestTheKindsOfLargeThingsFitTheBoundTogether(t *testing.T) {
	sum := int64(Program + History)
	for _, turns := range []*Turns{Notebooks, Answering, Pictures, SmallPictures, Arriving, Decoding} {
		sum += turns.Most()
	}
	for _, budget := range []*Budget{Displays, Trees, Events} {
		sum += budget.Most()
	}
	if sum > Most {
		t.Errorf("the relay may take %d MiB, over %d", sum>>20, Most>>20)
	}
}
