package inline

import (
	"bytes"
	"encoding/base64"
	"regexp"
	"strings"
	"testing"
)

func TestTheEnvironmentTellsTheProtocol(t *testing.T) {
	for _, c := range []struct {
		environment string
		want        Protocol
	}{
		{"TERM=xterm-256color", None},
		{"TERM=xterm-kitty", Kitty},
		{"TERM=xterm-256color TERM_PROGRAM=iTerm.app", ITerm},
		{"TERM=xterm-256color TERM_PROGRAM=vscode", None}, // off by default there
		{"TERM=tmux-256color TERM_PROGRAM=tmux KITTY_WINDOW_ID=1", None},
		{"TERM=dumb KITTY_WINDOW_ID=1", None},
	} {
		values := map[string]string{}
		for _, pair := range strings.Fields(c.environment) {
			name, value, _ := strings.Cut(pair, "=")
			values[name] = value
		}
		if got := Detect(func(name string) string { return values[name] }); got != c.want {
			t.Errorf("%s: %d, want %d", c.environment, got, c.want)
		}
	}
}

func TestSequencesHaveTheWholePicture(t *testing.T) {
	for _, size := range []int{1, 3072, 3073} {
		png := bytes.Repeat([]byte{7}, size)
		data := base64.StdEncoding.EncodeToString(png)
		if got := None.Sequence(png); got != "" {
			t.Errorf("none: %q", got)
		}
		if got := ITerm.Sequence(png); !strings.HasPrefix(got, "\x1b]1337;File=inline=1;") || !strings.HasSuffix(got, ":"+data+"\a\n") {
			t.Errorf("iTerm2, %d bytes: %.60q", size, got)
		}
		sequences := regexp.MustCompile(`\x1b_G((?:a=T,f=100,q=2,)?)m=([01]);([^\x1b]+)\x1b\\`).FindAllStringSubmatch(Kitty.Sequence(png), -1)
		var joined string
		for i, s := range sequences {
			last := i == len(sequences)-1
			if (s[1] != "") != (i == 0) || (s[2] == "0") != last || len(s[3]) > chunk || !last && len(s[3])%4 != 0 {
				t.Errorf("kitty, %d bytes, sequence %d: %q %q", size, i, s[1], s[2])
			}
			joined += s[3]
		}
		if joined != data {
			t.Errorf("kitty, %d bytes: the data differ", size)
		}
	}
}
