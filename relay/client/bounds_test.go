package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"sort"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/memory"
	"colabrelay/shared/tier"
)

func items(n int) string { return strings.TrimSuffix(strings.Repeat("{},", n), ",") }

func TestAnswersWithTooManyItemsAreRefused(t *testing.T) {
	few := map[string]int{"few": 3}
	for text, over := range map[string]bool{
		`{}`: false, `[]`: false, ``: false, `"a,b,c,d"`: false,
		`{"few":[1,2,3,4]}`:                       true,
		`{"FEW":[1,2,3,4]}`:                       true,
		`{"f\u0065w":[1,2,3,4]}`:                  true,
		`{"few": {"a":1,"b":2,"c":3,"d":4} }`:     true,
		`{"few":[[1,2,3,4],["a,b","c\",d,\\"]]}`:  false,
		`{"a\"few":[1,2,3,4]}`:                    false,
		`{"few":[{"few":[1,2,3]},{"few":[1,2]}]}`: false,
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

// Each list of the contract has its bound, whatever the case of its name and however it is escaped:
// the decoder takes these for the same field.
func TestEveryListOfTheContractIsBounded(t *testing.T) {
	left := maps.Clone(listLimits)
	for name, into := range map[string]func() any{
		"ExecutionList.executions": func() any { return new(contract.ExecutionList) },
		"JobList.jobs":             func() any { return new(contract.JobList) },
		"Job.steps":                func() any { return new(contract.Job) },
		"JobEntry.earlier":         func() any { return new(contract.JobEntry) },
		"Upload.missing":           func() any { return new(contract.Upload) },
		"Files.files":              func() any { return new(contract.Files) },
		"Comparison.files":         func() any { return new(contract.Comparison) },
		"BatchAnswer.files":        func() any { return new(contract.BatchAnswer) },
		"Contents.files":           func() any { return new(contract.Contents) },
	} {
		_, field, _ := strings.Cut(name, ".")
		for _, written := range []string{field, strings.ToUpper(field), `\u00` + fmt.Sprintf("%x", field[0]) + field[1:]} {
			for extra, over := range map[int]bool{0: false, 1: true} {
				item := "{},"
				if name == "JobEntry.earlier" {
					item = `"",`
				}
				list := strings.TrimSuffix(strings.Repeat(item, listLimits[name]+extra), ",")
				err := read(t.Context(), []byte(`{"`+written+`":[`+list+`]}`), into())
				if (err != nil) != over {
					t.Errorf("%d of %s as %q: %v", listLimits[name]+extra, name, written, err)
				}
			}
		}
		delete(left, name)
	}
	if len(left) > 0 {
		t.Errorf("not tested: %v", left)
	}
}

// What the items of an answer take in memory is bounded, also if each list is short; and over
// freeDecoded they take the turn of a large answer.
func TestWhatAnAnswerBecomesIsBounded(t *testing.T) {
	tier.Long(t)
	frames := func(n int) []byte { // 64 bytes a list, and one more for each item
		event := `{"traceback":["",` + strings.Repeat(`"",`, 1000) + `""]},`
		return []byte(`{"events":[` + strings.Repeat(event, n) + `{}]}`)
	}
	atBound := sort.Search(10_000, func(n int) bool {
		return (&itemScan{text: frames(n), root: shapeOf(reflect.TypeFor[contract.Execution]())}).run() != nil
	})
	if atBound < 1000 || atBound == 10_000 {
		t.Fatalf("%d lists are too many", atBound)
	}
	if err := read(t.Context(), frames(atBound-1), new(contract.Execution)); err != nil {
		t.Errorf("at the bound: %v", err)
	}
	wantKind(t, read(t.Context(), frames(atBound), new(contract.Execution)), KindBadAnswer)

	synctest.Test(t, func(t *testing.T) {
		done, err := memory.Decoding.Take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer done()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		few, many := freeDecoded/(1002*slack*16), freeDecoded/(1002*slack*16)+1
		if err := read(ctx, frames(few-2), new(contract.Execution)); err != nil {
			t.Errorf("an answer that takes no turn: %v", err)
		}
		if err := read(ctx, frames(many), new(contract.Execution)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("one that takes more: %v", err)
		}
	})
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
		err := read(t.Context(), []byte(text), new(contract.Execution))
		if !refused && err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if refused {
			wantKind(t, err, KindBadAnswer)
		}
	}
}

// While a caller waits for more of a run, it keeps the run's error.
func TestTheErrorOfARunIsBounded(t *testing.T) {
	for past := range 2 {
		many := strings.Split(strings.Repeat("f,", (maxError-2)/17+past), ",")
		for name, e := range map[string]*contract.ExecutionError{
			"one text":         {EName: "E", EValue: strings.Repeat("v", maxError-1+past)},
			"thousands of few": {EValue: "vv", Traceback: many[:len(many)-1]},
		} {
			text, err := json.Marshal(contract.Execution{Error: e})
			if err != nil {
				t.Fatal(err)
			}
			err = read(t.Context(), text, new(contract.Execution))
			if past == 0 && err != nil {
				t.Errorf("%s, at the bound: %v", name, err)
			}
			if past == 1 {
				wantKind(t, err, KindBadAnswer)
			}
		}
	}
}

// Other times can't be written as JSON, in a record or an answer.
func TestTheTimesOfARunArePlausible(t *testing.T) {
	for text, kind := range map[string]Kind{`"2026-01-02T03:04:05Z"`: "", `"0001-01-01T00:00:00Z"`: KindBadAnswer, `"9999-12-31T23:59:59-14:00"`: KindBadAnswer} {
		err := read(t.Context(), []byte(`{"execution_id": "e", "finished_at": `+text+`}`), new(contract.Execution))
		if kind == "" && err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if kind != "" {
			wantKind(t, err, kind)
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

// An answer that takes no turn for its length cannot have more events than its text has room for:
// {} takes three bytes of it and hundreds of memory. Neither case nor escapes change that.
func TestEventsThatCanNotBeRealAreRefusedInASmallAnswer(t *testing.T) {
	const n = 65_000
	for _, name := range []string{"events", "EVENTS", "eventſ", `\u0065vents`} {
		err := read(t.Context(), []byte(`{"`+name+`":[`+items(n)+`]}`), new(contract.Execution))
		wantKind(t, err, KindBadAnswer)
	}
	for extra, refused := range map[int]bool{0: false, 1: true} {
		text := func(n int) string { return `{"events":[` + items(n) + `]}` }
		most := sort.Search(n, func(n int) bool { return n >= len(text(n))/leastEvent+fewEvents }) // whose text is shorter the fewer there are
		if err := read(t.Context(), []byte(text(most+extra)), new(contract.Execution)); (err != nil) != refused {
			t.Errorf("%d events: %v", most+extra, err)
		}
	}
	figure := `{"events":[{"data":{"a/b":{"events":[` + strings.Repeat("1,", n) + `1]}}}]}`
	if err := read(t.Context(), []byte(figure), new(contract.Execution)); err != nil {
		t.Errorf("a payload with a list of that name: %v", err)
	}
}

// No file has a name or path of more bytes than these, and no answer states a folder's path for each
// of its entries.
func TestNamesOnTheVMAreBounded(t *testing.T) {
	for _, c := range []struct {
		folder, name int
		refused      bool
	}{{maxRemotePath, maxRemoteName, false}, {maxRemotePath + 1, 1, true}, {1, maxRemoteName + 1, true}} {
		folder, name := strings.Repeat("f", c.folder), strings.Repeat("n", c.name)
		e := newExecutor(t, func(s seen) (int, any) {
			return 200, contract.Files{Path: folder, Files: []contract.File{{Name: name, Path: folder + "/elsewhere"}}}
		})
		got, err := e.client(t).Files(t.Context(), "f")
		switch {
		case c.refused:
			wantKind(t, err, KindBadAnswer)
		case err != nil || got.Files[0].Path != "" || got.At(name) != folder+"/"+name:
			t.Errorf("%d and %d bytes: %.80q, %v", c.folder, c.name, got.At(name), err)
		}
	}
}
