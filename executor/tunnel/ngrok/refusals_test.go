package ngrok

import (
	"errors"
	"strings"
	"testing"
)

func TestEveryExplanationIsOneLineThatNamesItsCode(t *testing.T) {
	for code := range explanations {
		refused := refusal(errors.New("some words\r\n\r\n" + code + "\r\n"))
		if refused == nil || refused.Code != code {
			t.Fatalf("%s is read as %v", code, refused)
		}
		if text := refused.Error(); strings.ContainsAny(text, "\r\n") || !strings.HasSuffix(text, "("+code+")") || len(text) > 250 {
			t.Errorf("it says %q", text)
		}
	}
}

func TestRefusal(t *testing.T) {
	for text, want := range map[string]string{
		"connection reset by peer": "none",
		"ERR_NGROK_105":            "final",
		"ERR_NGROK_108":            "temporary",
		"ERR_NGROK_112":            "final",
		"ERR_NGROK_334":            "temporary",
		"ERR_NGROK_313":            "final",
		"ERR_NGROK_4018":           "final",
		"ERR_NGROK_8000":           "temporary",
		"ERR_NGROK_":               "none",
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
