package op

import (
	"encoding/json"
	"math"
	"regexp"
	"slices"
	"testing"

	"colabrelay/shared/contract"
)

// Some clients give their model the base64 of a picture as text, 367,000 characters of one plot.
func TestPicturesAreShownOrNamedAsTheClientOrTheSettingSays(t *testing.T) {
	h, f := serveFake(t)
	run := f.run("e1")
	run.event(contract.Event{Type: contract.EventDisplayData, Data: map[string]json.RawMessage{"image/png": encode(picture(t, 8))}})
	run.end(contract.StatusSucceeded)
	named := regexp.MustCompile(`(?m)^Output image/png is saved in /.+\.png \(8 × 8 pixels\)$`)
	for _, test := range []struct {
		client  string
		setting int
		shown   bool
	}{
		{"mcp", 0, true}, {"google-adk", 0, false}, {"ai-sdk-mcp-client", 0, false},
		{"google-adk", math.MaxInt, true}, {"mcp", -1, false}, {"mcp", 20, false}, {"mcp", 1000, true},
	} {
		h.relay.cfg.Pictures = test.setting
		h.name = test.client
		r := h.call("run_code_quick", map[string]any{"code": "plot()"})
		shown := slices.ContainsFunc(r.Content, func(c content) bool { return c.Type == "image" })
		if shown != test.shown || len(r.Content) > 2 || !named.MatchString(r.Content[0].Text) {
			t.Errorf("%+v: shown %t: %s", test, shown, r.Content[0].Text)
		}
	}
}
