package ngrok

import (
	"errors"
	"testing"
)

func TestRefusal(t *testing.T) {
	for text, want := range map[string]string{
		"connection reset by peer": "none",
		"ERR_NGROK_105":            "final",
		"ERR_NGROK_108":            "temporary",
		"ERR_NGROK_334":            "temporary",
		"ERR_NGROK_4018":           "final",
	} {
		got := "none"
		if refused := refusal(errors.New(text)); refused != nil {
			got = map[bool]string{true: "temporary", false: "final"}[refused.Temporary]
		}
		if got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
}
