package chunked

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"colabrelay/relay/checkpoint"
	"colabrelay/relay/jobs"
	"colabrelay/shared/contract"
)

func TestValuesAreBoundedTogetherAndTheFileStaysReadable(t *testing.T) {
	dir := t.TempDir()
	s := newRecord(spec("", "1", 400))
	value := "[" + strings.Repeat("1,", 30_000) + "1]"
	for i := range s.N {
		s.confirm(i + 1)
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
	s.confirm(3)
	s.Job = &jobs.Ticket{JobID: "j"} // which can neither be sent nor be known to the VM
	if _, err := checkpoint.Save(dir, "n", s); err != nil {
		t.Fatal(err)
	}
	back, err := Load(dir, "n")
	if err != nil || back.Job != nil || len(back.Results) != 3 || back.ResultBytes != s.ResultBytes || string(back.Results[0].Value) != value || back.Output != s.Output {
		t.Fatal(err)
	}
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
		s.confirm(m.first())
		s.confirm(m.Done)
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
