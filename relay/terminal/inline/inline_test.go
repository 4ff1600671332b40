package inline

import (
	"bytes"
	"encoding/base64"
	"regexp"
	"strings"
	"testing"
)

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
