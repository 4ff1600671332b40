package filename

import (
	"errors"
	"testing"
)

func TestWhatOnlyAShellReplacesIsNoName(t *testing.T) {
	t.Setenv("HOME", "/home/u")
	t.Setenv("USERPROFILE", "/home/u")
	for path, want := range map[string]string{
		"~": "/home/u", "~/": "/home/u/", "~/a/b": "/home/u/a/b", "": "", "a/~/b": "a/~/b", "./~/a": "./~/a", "./$HOME": "./$HOME", "x~": "x~",
		"Foo$Bar.class": "Foo$Bar.class", "$1": "$1", "100%": "100%", "%20a%20": "%20a%20", "/a/%E4%BD%A0": "/a/%E4%BD%A0", "log-%Y-%m": "log-%Y-%m", "myfile:1": "myfile:1",
		"~bob/x": "!", "~bob": "!", "$HOME/x": "!", "/home/$USER/x": "!", "a/${RUN}.csv": "!", "a_${RUN}.csv": "!", "$(pwd)/x": "!", "$env:TEMP/x": "!",
		"%USERPROFILE%/x": "!", `C:\Users\%USERNAME%\x`: "!", "file:///content/x": "!", "FILE:x": "!", "~/$RUN": "!",
	} {
		got, err := Typed(path)
		if refused := errors.Is(err, ErrNotation); refused != (want == "!") || !refused && (err != nil || got != want) {
			t.Errorf("%q is %q, %v; want %q", path, got, err, want)
		}
	}
}
