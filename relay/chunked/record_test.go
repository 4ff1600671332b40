package chunked

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"colabrelay/relay/checkpoint"
	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

func TestRangesRecordWhichKernelRanWhat(t *testing.T) {
	s := newRecord(spec("", "1", 100))
	for _, step := range []struct {
		done   int64
		kernel string
		want   []Range
	}{
		{0, "a", []Range{}},
		{5, "a", []Range{{0, 5, "a", "vm"}}},
		{5, "a", []Range{{0, 5, "a", "vm"}}},
		{9, "a", []Range{{0, 9, "a", "vm"}}},
		{12, "b", []Range{{0, 9, "a", "vm"}, {9, 12, "b", "vm"}}},
		{10, "c", []Range{{0, 9, "a", "vm"}, {9, 10, "b", "vm"}}},
		{9, "c", []Range{{0, 9, "a", "vm"}}},
		{7, "c", []Range{{0, 7, "a", "vm"}}},
		{20, "c", []Range{{0, 7, "a", "vm"}, {7, 20, "c", "vm"}}},
		{0, "d", []Range{}},
	} {
		s.confirm(step.done, step.kernel, "vm")
		if diff := cmp.Diff(step.want, s.Ranges); diff != "" || s.Done != step.done || !s.isConsistent() {
			t.Errorf("ranges after %d iterations of kernel %s (-want +got):\n%s", step.done, step.kernel, diff)
		}
	}
	for i := range int64(5000) {
		s.confirm(i+1, fmt.Sprint("kernel-", i), "vm")
	}
	if len(s.Ranges) != maxRanges || !s.isConsistent() || s.Ranges[0].KernelID != "several" || s.Done != 5000 {
		t.Errorf("%d ranges, the first %+v", len(s.Ranges), s.Ranges[0])
	}
}

func TestValuesAreBoundedTogetherAndTheFileStaysReadable(t *testing.T) {
	tier.Long(t)
	dir := t.TempDir()
	s := newRecord(spec("", "1", 400))
	value := "[" + strings.Repeat("1,", 30_000) + "1]"
	for i := range s.N {
		s.confirm(i+1, "k", "vm")
		s.addValue(Value{Iteration: i, Value: json.RawMessage(value)})
	}
	if s.ResultsDropped == 0 || int64(len(s.Results))+s.ResultsDropped != s.N {
		t.Errorf("%d kept, %d dropped", len(s.Results), s.ResultsDropped)
	}
	// The file adds only a little to the data.
	if data, err := json.Marshal(s); err != nil || len(data) > checkpoint.MaxBytes/2 {
		t.Errorf("a record of %d bytes, %v", len(data), err)
	}
	s.addOutput(strings.Repeat("ä", 10_000))
	if len(s.Output) > maxOutput || !utf8.ValidString(s.Output) || len(s.Output) < maxOutput-4 {
		t.Errorf("%d bytes of output", len(s.Output))
	}
	s.confirm(3, "k", "vm")
	if _, err := checkpoint.Save(dir, "n", s); err != nil {
		t.Fatal(err)
	}
	back, err := Load(dir, "n")
	// A small file is indented, and the white space must not count.
	if err != nil || len(back.Results) != 3 || back.ResultBytes != s.ResultBytes || string(back.Results[0].Value) != value || back.Output != s.Output {
		t.Fatal(err)
	}
	back.confirm(0, "k", "vm")
	if len(back.Results) != 0 || back.ResultBytes != 0 {
		t.Errorf("%d values, %d bytes left", len(back.Results), back.ResultBytes)
	}
	// perResult must cover what a value adds to the file besides its JSON.
	if b, _ := json.Marshal([]Value{{Iteration: MaxIterations, Value: json.RawMessage("1")}}); len(b) > perResult {
		t.Errorf("%s", b)
	}
}

// A file may have any content, but an accepted record must be consistent.
func FuzzLoad(f *testing.F) {
	good, _ := json.Marshal(newRecord(spec("", "1", 10)))
	f.Add(good)
	f.Add([]byte(`{"kind":"chunked","version":2,"key":"k","n_iterations":5,"completed":3,"batch_size":1,"recorded":2,"ranges":[{"from":0,"to":3}],"job":{"job_id":"j","entry":1}}`))
	f.Add([]byte(`{"kind":"chunked","version":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if !json.Valid(data) {
			return
		}
		dir := t.TempDir()
		if _, err := checkpoint.Save(dir, "n", json.RawMessage(data)); err != nil {
			return
		}
		s, err := Load(dir, "n")
		switch {
		case err == nil && (!s.isConsistent() || s.Done < 0 || s.N < 1):
			t.Errorf("accepted: %s", data)
		case err != nil && !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNotChunked):
			t.Errorf("%s: %v", data, err)
		}
	})
}

// The user's code can send any marker.
func FuzzReadMarker(f *testing.F) {
	f.Add([]byte(`{"run":"k","event":"done","done":3,"count":1,"seconds":0.5,"values":[{"i":2,"result":"[1]"}]}`))
	f.Add([]byte(`{"run":"k","event":"done","done":9,"count":4,"values":[{"i":7,"omitted":"x"},{"i":6,"result":"1"},{"i":8,"result":"{"},{"i":9,"result":"1"}]}`))
	f.Add([]byte(`{"run":"k","event":"done","done":-3,"count":1}`))
	f.Add([]byte(`{"run":"k","event":"done","done":3,"count":4}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := &Record{Key: "k", N: 10}
		m, ok := readMarker(contract.Event{Data: map[string]json.RawMessage{markerMIME: data}}, s)
		if !ok {
			return
		}
		s.confirm(m.first(), "kernel", "vm")
		s.confirm(m.Done, "kernel", "vm")
		at := m.first()
		for _, v := range m.values() {
			if !json.Valid(v.Value) || v.Iteration < at || v.Iteration >= m.Done {
				t.Errorf("value %+v", v)
			}
			at = v.Iteration + 1
		}
		if s.Done < 0 || s.Done > MaxIterations {
			t.Errorf("done %d", s.Done)
		}
	})
}

func TestThePaceFollowsTheLatestIterations(t *testing.T) {
	times := func(r *Record, n int, seconds float64) {
		for range n {
			r.addTimes(marker{Count: 1, Seconds: seconds})
		}
	}
	r := &Record{}
	times(r, 1, 30) // a warm-up
	times(r, 9, 1)
	if math.Abs(r.PaceSeconds-3.9) > 1e-9 || math.Abs(r.MeanSeconds-3.9) > 1e-9 {
		t.Errorf("after few iterations: pace %g, mean %g", r.PaceSeconds, r.MeanSeconds)
	}
	times(r, 500, 1)
	if r.PaceSeconds > 1.01 {
		t.Errorf("after a warm-up: %g", r.PaceSeconds)
	}
	times(r, 200, 5) // the work grows
	if r.PaceSeconds < 4.9 || r.MeanSeconds > 3 {
		t.Errorf("after it grew: pace %g, mean %g", r.PaceSeconds, r.MeanSeconds)
	}
	r.addTimes(marker{Count: 1000, Seconds: 10})
	if got := r.PaceSeconds; got < 0.0099 || got > 0.0101 {
		t.Errorf("after a marker of many iterations: %g", got)
	}
}
