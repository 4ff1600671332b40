package jupyter

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func FuzzHandshake(f *testing.F) {
	f.Add(appendFrame(greeting(), flagCommand, readyCommand("ROUTER", "id")))
	f.Add(greeting())
	f.Fuzz(func(t *testing.T, wire []byte) {
		r := newFrameReader(bytes.NewReader(wire), 1<<16, &framePool{}, nil)
		if readHandshake(r, dealer) == nil && !bytes.Equal(wire[12:16], []byte("NULL")) {
			t.Error("it accepted another mechanism")
		}
	})
}

// FuzzFrames checks that frames do not change when they are written and read again.
func FuzzFrames(f *testing.F) {
	f.Add(appendMessage(nil, []byte("a"), bytes.Repeat([]byte("b"), 300), nil))
	f.Add([]byte{flagLong, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{flagCommand, 1, 'x', 0, 0})
	f.Fuzz(func(t *testing.T, wire []byte) {
		const bound = 1 << 16
		first, err := newFrameReader(bytes.NewReader(wire), bound, &framePool{}, nil).message()
		if err != nil || first.excess != nil {
			return
		}
		total := 0
		for _, frame := range first.frames {
			total += len(frame)
		}
		if total > bound {
			t.Fatalf("it read %d bytes", total)
		}
		second, err := newFrameReader(bytes.NewReader(appendMessage(nil, first.frames...)), bound, &framePool{}, nil).message()
		if err != nil || !bytes.Equal(bytes.Join(first.frames, []byte("|")), bytes.Join(second.frames, []byte("|"))) {
			t.Errorf("read %q, then %q, %v", first.frames, second.frames, err)
		}
	})
}

func FuzzParseMessage(f *testing.F) {
	f.Add(appendMessage(nil, streamFrames(f, "", "p", "x")...), "")
	f.Add(appendMessage(nil, streamFrames(f, "key", "p", "x")...), "key")
	f.Add(appendMessage(nil, streamFrames(f, "key", "p", strings.Repeat("é\n", 200))...), "key")
	f.Fuzz(func(t *testing.T, wire []byte, key string) {
		frames, err := newFrameReader(bytes.NewReader(wire), 1<<8, &framePool{}, signer(key)).message()
		if err != nil {
			return
		}
		if m, err := parseMessage(IOPub, frames, signer(key)); err == nil {
			_, _ = m.Decode(&Stream{}), m.Decode(&DisplayData{})
			m.Parent()
		}
	})
}

// FuzzText checks that Text agrees with encoding/json and divides between characters.
func FuzzText(f *testing.F) {
	for _, seed := range []string{`"a\n\"\\\/é\u00e9\ud83d\ude00"`, `"\ud83d"`, `"\ude00\ud83d\u0041"`, "\"\xff\xe2\x82\"", `"`, `"\u12"`, `""`} {
		f.Add([]byte(seed), 4)
	}
	f.Fuzz(func(t *testing.T, raw []byte, size int) {
		var want string
		unmarshalled := json.Unmarshal(raw, &want)
		trimmed := bytes.Equal(raw, bytes.Trim(raw, " \t\r\n")) && !bytes.Equal(raw, []byte("null"))
		size &= 0xff
		var got []byte
		err := Text(raw, size, func(chunk []byte) {
			if len(chunk) == 0 || len(chunk) > max(size, 4) || !utf8.Valid(chunk) {
				t.Errorf("piece %q, at most %d", chunk, size)
			}
			got = append(got, chunk...)
		})
		if trimmed && (err == nil) != (unmarshalled == nil) {
			t.Fatalf("Text: %v, encoding/json: %v", err, unmarshalled)
		}
		if err == nil && string(got) != want {
			t.Errorf("Text %q, encoding/json %q", got, want)
		}
	})
}

// FuzzFields checks that fields finds the members that encoding/json finds.
func FuzzFields(f *testing.F) {
	for _, seed := range []string{`{}`, `{"a":"}\\\"","b":[1,{"c":null}],"d":-1e5 , "e" : true}`, `{"a":1,}`, `{"a"}`, `{"\u0061":""}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got := map[string]json.RawMessage{}
		err := fields(raw, func(key string, value json.RawMessage) { got[key] = value })
		var want map[string]json.RawMessage
		if json.Unmarshal(raw, &want) != nil || want == nil {
			return // for an invalid object it need only return
		}
		if err != nil || len(got) != len(want) {
			t.Fatalf("fields: %v, %v; want %v", got, err, want)
		}
		for key, value := range want {
			if !bytes.Equal(got[key], value) {
				t.Errorf("%q is %q, want %q", key, got[key], value)
			}
		}
	})
}
