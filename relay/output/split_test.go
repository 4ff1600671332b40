package output

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

// small are limits that a short test exceeds.
var small = Limits{Text: 300, Outputs: 10, Payload: 200, Payloads: 4 * minBlob, Saved: 100_000, Kept: 1 << 20}

// saver is a SaveText that keeps texts in memory.
type saver map[string][]byte

func (s saver) save(key string, offset int64, text []byte) (string, error) {
	if offset > int64(len(s[key])) {
		return "", fmt.Errorf("a gap before %d", offset)
	}
	if s[key] = append(s[key][:offset:offset], text...); len(s[key]) == 0 {
		delete(s, key)
	}
	return key + ".txt", nil
}

// randomEvent returns an event of a cell that uses all features.
func randomEvent(r *rand.Rand) contract.Event {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	id := pick("", "a", "b", "c")
	data := map[string]json.RawMessage{"text/plain": json.RawMessage(fmt.Sprintf("%q", strings.Repeat("x", r.IntN(300))))}
	if r.IntN(3) == 0 {
		data["image/png"] = json.RawMessage(fmt.Sprintf(`{"blob":{"number":%d,"bytes":%d,"sha256":"x"}}`, 1+r.IntN(9), 1+r.IntN(5)))
	}
	switch r.IntN(20) {
	case 0:
		return contract.Event{Type: contract.EventClearOutput, Wait: r.IntN(3) > 0}
	case 1:
		return contract.Event{Type: contract.EventGap, Bytes: r.Int64N(100)}
	case 2:
		return contract.Event{Type: contract.EventError, EName: "E", EValue: pick("v", "w")}
	case 3, 4, 5:
		return contract.Event{Type: contract.EventDisplayData, DisplayID: id, Data: data}
	case 6, 7, 8:
		return contract.Event{Type: contract.EventUpdateDisplayData, DisplayID: id, Data: data}
	}
	text := strings.Repeat(pick("a", "é\r", "\r\n", "line\n", "10%\r", "\x1b[1m", "世", "\n", "long line "), 1+r.IntN(12))
	return contract.Event{Type: contract.EventStream, Name: pick(contract.Stdout, contract.Stdout, contract.Stderr), Text: text}
}

// fetchNumber serves payloads whose content depends on their number only.
func fetchNumber(_ context.Context, blob contract.Blob, w io.Writer) error {
	if blob.Number == 9 {
		return io.ErrUnexpectedEOF
	}
	_, err := io.WriteString(w, strings.Repeat(fmt.Sprint(blob.Number), int(blob.Bytes)))
	return err
}

// read returns the outputs of two cells whose events arrive in pieces, and their saved texts. The
// second cell begins when the first one's events are there.
func read(t *testing.T, cells [2][][]contract.Event) string {
	t.Helper()
	saved := saver{}
	c := Collector{Limits: small, Save: saved.save}
	for i, pieces := range cells {
		cell := c.Begin(fmt.Sprint(i))
		for _, piece := range pieces {
			cell.Add(t.Context(), piece, fetchNumber)
			cell.Outputs()
		}
		for range maxTries {
			cell.Add(t.Context(), nil, fetchNumber)
		}
	}
	return fmt.Sprintf("%s\n%s\n%q", joined(t, c.Outputs("0")), joined(t, c.Outputs("1")), saved)
}

// inPieces returns events in random pieces, and streams in pieces of a few characters.
func inPieces(r *rand.Rand, events []contract.Event) (pieces [][]contract.Event) {
	var piece []contract.Event
	for _, ev := range events {
		rest := ev.Text
		for rest != "" && r.IntN(2) == 0 {
			n := r.IntN(len(rest))
			for n > 0 && !utf8.RuneStart(rest[n]) {
				n--
			}
			ev.Text, rest = rest[:n], rest[n:]
			piece = append(piece, ev)
		}
		ev.Text = rest
		if piece = append(piece, ev); r.IntN(3) == 0 {
			pieces, piece = append(pieces, piece), nil
		}
	}
	return append(pieces, piece)
}

func TestOutputsDoNotDependOnThePiecesInWhichEventsArrive(t *testing.T) {
	tier.Long(t)
	rounds := 60
	for seed := range rounds {
		r := rand.New(rand.NewPCG(1, uint64(seed)))
		var cells [2][]contract.Event
		for i := range cells {
			for range 1 + r.IntN(40) {
				cells[i] = append(cells[i], randomEvent(r))
			}
		}
		want := read(t, [2][][]contract.Event{{cells[0]}, {cells[1]}})
		check := func(how string, pieces [2][][]contract.Event) {
			t.Helper()
			if got := read(t, pieces); got != want {
				t.Fatalf("seed %d, %s:\n%s\nwant\n%s", seed, how, got, want)
			}
		}
		for i := range cells[0] { // every split of the log in two
			j := min(i, len(cells[1]))
			check(fmt.Sprint("split at ", i), [2][][]contract.Event{{cells[0][:i], cells[0][i:]}, {cells[1][:j], cells[1][j:]}})
		}
		for range 3 {
			check("random pieces", [2][][]contract.Event{inPieces(r, cells[0]), inPieces(r, cells[1])})
		}
	}
}
