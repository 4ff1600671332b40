package jupyter

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

func sized(id, parent, msgType string, size int64) *Message {
	return &Message{Channel: IOPub, Header: Header{MsgID: id, MsgType: msgType}, ParentHeader: Header{MsgID: parent}, size: size}
}

func TestInboxCountsDropsForTheirParentWhereTheyHappened(t *testing.T) {
	q := newInbox(10<<10, &framePool{}, slog.New(slog.DiscardHandler))
	q.put(sized("1", "a", MsgStream, 9<<10))
	q.put(sized("2", "a", MsgStream, 9<<10))
	q.put(sized("3", "b", MsgStream, 7<<10))
	q.put(sized("4", "a", MsgStatus, 100))
	q.put(sized("5", "b", MsgStatus, 100))
	for _, want := range []struct {
		id      string
		dropped Dropped
	}{{"1", Dropped{}}, {"4", Dropped{1, 9 << 10}}, {"5", Dropped{1, 7 << 10}}} {
		m, err := q.receive(t.Context())
		if err != nil || m.Header.MsgID != want.id || m.Dropped != want.dropped {
			t.Errorf("received %+v, %v; want %+v", m, err, want)
		}
	}
}

// A consumer on a busy machine needs seconds for each message. What follows waits for it.
func TestBigMessageWaitsWhileItsConsumerGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newInbox(4*bigMessage, &framePool{}, slog.New(slog.DiscardHandler))
		go func() {
			for range 10 {
				q.put(sized("big", "a", MsgStream, bigMessage))
			}
			q.put(sized("huge", "a", MsgStream, 4*bigMessage)) // needs all the room
		}()
		for n := range 11 {
			m, err := q.receive(t.Context())
			if err != nil || m.Dropped != (Dropped{}) {
				t.Fatalf("message %d: %v, dropped before it: %+v", n, err, m.Dropped)
			}
			<-time.After(roomTimeout - time.Second)
		}
	})
}

func TestBigMessageWaitsForItsConsumerButNotForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newInbox(bigMessage, &framePool{}, slog.New(slog.DiscardHandler))
		began := time.Now()
		for range 3 {
			q.put(sized("big", "a", MsgStream, bigMessage))
		}
		if waited := time.Since(began); waited != roomTimeout {
			t.Errorf("waited %v for a consumer that never received, want %v once", waited, roomTimeout)
		}
		go func() {
			for range 2 { // the second call releases the first message
				if _, err := q.receive(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}()
		synctest.Wait()
		q.put(sized("next", "a", MsgStream, bigMessage))
		synctest.Wait()
		if q.received == nil || q.received.Header.MsgID != "next" || q.received.Dropped.Messages != 2 {
			t.Errorf("received = %+v, want the next one, with two dropped before it", q.received)
		}
	})
}
