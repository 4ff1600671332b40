package client

import (
	"bytes"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/hostilevm"
)

func items(n int) string { return strings.TrimSuffix(strings.Repeat("{},", n), ",") }

func TestAnswersWithTooManyItemsAreRefused(t *testing.T) {
	few := map[string]int{"few": 3}
	for text, over := range map[string]bool{
		`{}`: false, `[]`: false, ``: false, `"a,b,c,d"`: false,
		`{"few":[1,2,3]}`:                         false,
		`{"few":[1,2,3,4]}`:                       true,
		`{"few": {"a":1,"b":2,"c":3} }`:           false,
		`{"few": {"a":1,"b":2,"c":3,"d":4} }`:     true,
		`{"other":[1,2,3,4]}`:                     false,
		`{"few":"x","other":[1,2,3,4]}`:           false,
		`{"few":[[1,2,3,4],["a,b","c\",d,\\"]]}`:  false,
		`{"a\"few":[1,2,3,4]}`:                    false,
		`{"few":[{"few":[1,2,3]},{"few":[1,2]}]}`: false,
		`["few",[1,2,3,4]]`:                       false,
		`[` + items(maxItems) + `]`:               false,
		`[` + items(maxItems+1) + `]`:             true,
		`{"events":[` + items(maxItems+1) + `]}`:  true,
		strings.Repeat("[", maxNesting):           false,
		strings.Repeat("[", maxNesting+1):         true,
		`}}]],,`:                                  false, // no JSON: the decoder says so
		`"\`:                                      false,
	} {
		if err := CheckItems([]byte(text), few); errors.Is(err, bounded.ErrTooLong) != over {
			t.Errorf("%.60q: %v, want an error: %v", text, err, over)
		}
	}
}

func TestEveryListOfTheContractIsBounded(t *testing.T) {
	for name, n := range fewerItems {
		for extra, over := range map[int]bool{0: false, 1: true} {
			var into map[string]any
			err := read([]byte(`{"`+name+`":[`+items(n+extra)+`]}`), &into)
			if (err != nil) != over {
				t.Errorf("%d of %q: %v", n+extra, name, err)
			}
		}
	}
}

// hostile is a client of an executor that misbehaves so.
func hostile(t *testing.T, name string) *Client {
	t.Helper()
	vm := hostilevm.Start(t, name)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableCompression = true
	t.Cleanup(transport.CloseIdleConnections)
	c, err := New(Config{BaseURL: vm.URL, Secret: vm.Secret, Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestBombsAreRefusedAsBadAnswers(t *testing.T) {
	for _, name := range []string{"events", "gzip"} {
		_, err := hostile(t, name).Submit(t.Context(), contract.Submit{Code: "1"})
		wantKind(t, err, KindBadAnswer)
	}
	_, err := hostile(t, "executions").List(t.Context(), 0)
	wantKind(t, err, KindBadAnswer)
	_, err = hostile(t, "disks").Probe(t.Context())
	wantKind(t, err, KindBadAnswer)
	_, err = hostile(t, "variables").Variables(t.Context())
	wantKind(t, err, KindBadAnswer)
	_, err = hostile(t, "files").Files(t.Context(), "/content")
	wantKind(t, err, KindBadAnswer)
}

func TestABlobEndsWhereItsReferenceSays(t *testing.T) {
	sha := strings.Repeat("ab", 32)
	c := hostile(t, "endless-blob")
	for _, size := range []int64{0, 1000, contract.MaxBlobPart, contract.MaxBlobPart + 1} {
		var got bytes.Buffer
		err := c.Blob(t.Context(), "e-1", contract.Blob{Number: 1, SHA256: sha, Bytes: size}, &got)
		wantKind(t, err, KindBadAnswer)
		if int64(got.Len()) > size {
			t.Errorf("%d bytes came of a blob of %d", got.Len(), size)
		}
	}
	for _, size := range []int64{-1, maxBlobBytes + 1} {
		wantKind(t, c.Blob(t.Context(), "e-1", contract.Blob{Number: 1, SHA256: sha, Bytes: size}, failingWriter{t}), KindBadAnswer)
	}
}

// failingWriter must not be written to.
type failingWriter struct{ t *testing.T }

func (w failingWriter) Write(p []byte) (int, error) {
	w.t.Errorf("%d bytes were written", len(p))
	return len(p), nil
}

func TestEventsAtImpossibleOffsetsAreRefused(t *testing.T) {
	for text, refused := range map[string]bool{
		`{"events":[{"offset":9007199254740992,"events":9007199254740992}],"next_offset":9007199254740992}`: false,
		`{"events":[{"offset":0},{"offset":9007199254740993}]}`:                                             true,
		`{"events":[{"offset":9223372036854775807}]}`:                                                       true,
		`{"events":[{"offset":-1}]}`:                                                                        true,
		`{"events":[{"type":"gap","events":9223372036854775807}]}`:                                          true,
		`{"events":[{"type":"gap","bytes":-1}]}`:                                                            true,
		`{"next_offset":-1}`:                                                                                true,
	} {
		err := read([]byte(text), new(contract.Execution))
		if !refused && err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if refused {
			wantKind(t, err, KindBadAnswer)
		}
	}
}

// An executor that never says that an answer was the last one holds no call for ever.
func TestAFinishedExecutionIsReadInABoundedNumberOfAnswers(t *testing.T) {
	for name, page := range map[string]contract.Execution{
		"empty answers":    {Status: contract.StatusSucceeded},
		"unknown status":   {Status: "resting", NextOffset: 1},
		"no status":        {},
		"the same event":   {Status: contract.StatusFailed, Events: []contract.Event{{}}},
		"an old execution": {Status: contract.StatusLost, NextOffset: maxOffset},
	} {
		p := anyPages{left: []contract.Execution{page}}
		_, err := Follow(t.Context(), &p, contract.Execution{ExecutionID: "e"}, FollowOptions{
			Visit: func(contract.Execution) bool { return true }, Spacing: func() time.Duration { return 0 },
		})
		wantKind(t, err, KindBadAnswer)
		if p.reads != maxEndPages+1 {
			t.Errorf("%s: %d answers were read", name, p.reads)
		}
	}
}
