package tunnel

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"golang.ngrok.com/muxado/v2/frame"
)

// frames writes a run of muxado frames as the agent does.
type frames struct {
	t *testing.T
	bytes.Buffer
}

func (f *frames) data(id frame.StreamId, payload string, syn, fin bool) *frames {
	f.t.Helper()
	var d frame.Data
	if err := d.Pack(id, []byte(payload), fin, syn); err != nil {
		f.t.Fatal(err)
	}
	if err := frame.NewFramer(nil, &f.Buffer).WriteFrame(&d); err != nil {
		f.t.Fatal(err)
	}
	return f
}

func (f *frames) window(id frame.StreamId) *frames {
	f.t.Helper()
	var w frame.WndInc
	if err := w.Pack(id, 4096); err != nil {
		f.t.Fatal(err)
	}
	if err := frame.NewFramer(nil, &f.Buffer).WriteFrame(&w); err != nil {
		f.t.Fatal(err)
	}
	return f
}

const (
	bindType  = "\x00\x00\x00\x01"
	proxyType = "\x00\x00\x00\x03"
	telling   = `{"Id":"x","ForwardsTo":"app://host//bin/a\"b?pid=7","Proto":"https"}`
)

func TestScrubChangesOnlyRequestsForAnEndpoint(t *testing.T) {
	from := (&frames{t: t}).
		data(3, bindType, true, false).window(3).
		data(4, telling, false, false). // a visitor's answer
		data(3, telling, false, false).
		data(3, "", false, true).
		data(5, proxyType+telling, true, true).
		data(7, bindType+telling, true, true)
	want := strings.Replace(from.String(), telling, "@", 1)
	harmless := `{"Id":"x","ForwardsTo":"colab-relay"` + strings.Repeat(" ", len(`app://host//bin/a\"b?pid=7`)-len("colab-relay")) + `,"Proto":"https"}`
	want = strings.Replace(want, telling, harmless, 1) // stream 3
	want = strings.Replace(want, telling, "#", 1)      // stream 5
	want = strings.Replace(want, telling, harmless, 1) // stream 7
	want = strings.NewReplacer("@", telling, "#", telling).Replace(want)

	for name, source := range map[string]io.Reader{
		"whole":       bytes.NewReader(from.Bytes()),
		"byte a read": iotest.OneByteReader(bytes.NewReader(from.Bytes())),
	} {
		t.Run(name, func(t *testing.T) {
			var to bytes.Buffer
			if err := scrub(&to, source); !errors.Is(err, io.EOF) {
				t.Fatalf("scrub ended with %v", err)
			}
			if to.String() != want {
				t.Errorf("got\n%q\nwant\n%q", to.String(), want)
			}
		})
	}
}

func TestScrubEndsWhenTheOtherSideIsGone(t *testing.T) {
	from := (&frames{t: t}).data(3, bindType, true, false)
	if err := scrub(errorWriter{}, from); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("scrub ended with %v", err)
	}
}

type errorWriter struct{}

func (errorWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func FuzzHideForwardsTo(f *testing.F) {
	f.Add("app://host//path/to/executor?pid=12", "colab-relay 1.0")
	f.Add("", "")
	f.Add(`quo"te\`, `"ForwardsTo":"x"`)
	f.Fuzz(func(t *testing.T, value, other string) {
		type bind struct{ ID, ForwardsTo, Metadata string }
		payload, err := json.Marshal(bind{other, value, other})
		if err != nil {
			t.Fatal(err)
		}
		length := len(payload)
		var before, after bind
		if err := json.Unmarshal(payload, &before); err != nil {
			t.Fatal(err)
		}
		hideForwardsTo(payload)
		if err := json.Unmarshal(payload, &after); err != nil || len(payload) != length {
			t.Fatalf("%q: %v", payload, err)
		}
		if !strings.HasPrefix(forwardsTo, after.ForwardsTo) {
			t.Errorf("ForwardsTo is %q", after.ForwardsTo)
		}
		if before.ID != after.ID || before.Metadata != after.Metadata {
			t.Errorf("%+v became %+v", before, after)
		}
	})
}

func FuzzScrub(f *testing.F) {
	f.Add([]byte("\x00\x00\x04\x12\x00\x00\x00\x03\x00\x00\x00\x01"))
	f.Add([]byte("\xff\xff\xff\x12\x00\x00\x00\x03\x00\x00\x00\x01{"))
	f.Fuzz(func(t *testing.T, in []byte) {
		var to bytes.Buffer
		if err := scrub(&to, bytes.NewReader(in)); err == nil {
			t.Error("scrub ended without an error")
		}
		if to.Len() > len(in) {
			t.Errorf("%d bytes became %d", len(in), to.Len())
		}
	})
}
