package tools

import (
	"encoding/json"
	"testing"
)

func TestACheckpointIsShownPlain(t *testing.T) {
	for data, want := range map[string]string{
		`{"stdout":"a\u001b[2Jb\u2066","k\u202e":[1.50,{"x":"\u009b1A"}]}`: `{"k":[1.50,{"x":""}],"stdout":"ab"}`,
		`{"b":"as it is\n","a":1e400}`:                                     `{"b":"as it is\n","a":1e400}`,
	} {
		if got, _, err := fitData(json.RawMessage(data)); err != nil || string(got) != want {
			t.Errorf("%s becomes %s, %v; want %s", data, got, err, want)
		}
	}
}
