package main

import (
	"bytes"
	"encoding/base64"
	"image"
	"image/png"
	"strings"
	"testing"
)

// drawn is a picture that can be decoded.
func drawn(t *testing.T) picture {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, 2, 2))); err != nil {
		t.Fatal(err)
	}
	return picture{"image/png", base64.StdEncoding.EncodeToString(b.Bytes())}
}

func TestATrialFindsWhatAHostLosesOrAdds(t *testing.T) {
	const text = "Error (failed): \"x\" < 1\nNext step: look"
	good, long := drawn(t), strings.Repeat("QUJD", 200)
	for name, c := range map[string]struct {
		texts  []string
		images []picture
		as     form
		change func(*trial, *sent)
		want   string // in the error, "" for none
	}{
		"all is well":                   {texts: []string{text}, images: []picture{good}},
		"the host adds a frame":         {texts: []string{"Wall time: 1 s\n" + text + "\nEnd"}, images: []picture{good}},
		"as JSON":                       {texts: []string{`[{"text":"Error (failed): \"x\" < 1\nNext step: look"}]`}, images: []picture{good}, as: inJSON},
		"as XML":                        {texts: []string{`<result>Error (failed): "x" &lt; 1` + "\nNext step: look</result>"}, images: []picture{good}, as: inXML},
		"JSON without need":             {texts: []string{`{"text":"Error (failed): \"x\" < 1\nNext step: look"}`}, images: []picture{good}, want: "did not arrive whole"},
		"a part is missing":             {texts: []string{text[:20]}, images: []picture{good}, want: `lacks "Next step:"`},
		"twice":                         {texts: []string{text, text}, images: []picture{good}, want: "arrived 2 times"},
		"twice, as this host does":      {texts: []string{text, text}, images: []picture{good}, change: func(x *trial, _ *sent) { x.times = 2 }},
		"once, where it is twice":       {texts: []string{text}, images: []picture{good}, change: func(x *trial, _ *sent) { x.times = 2 }, want: "arrived 1 times"},
		"a picture that the host drops": {texts: []string{text}, change: func(x *trial, _ *sent) { x.pictures, x.lost = 0, 1 }},
		"the JSON for programs":         {texts: []string{text, `{"success":false}`}, images: []picture{good}, want: "JSON for programs"},
		"the JSON for programs, quoted": {texts: []string{text, `"{\"success\":false}"`}, images: []picture{good}, want: "JSON for programs"},
		"base64":                        {texts: []string{text, long}, images: []picture{good}, want: "800 characters of base64"},
		"no picture":                    {texts: []string{text}, want: "got 0 pictures, the relay sent 1"},
		"a broken picture":              {texts: []string{text}, images: []picture{{"image/png", "AAAA"}}, want: "a picture of type"},
		"a picture of another type":     {texts: []string{text}, images: []picture{{"image/gif", good.Data}}, want: "a picture of type"},
		"a picture that is no base64":   {texts: []string{text}, images: []picture{{"image/png", "?"}}, want: "no base64"},
		"a picture with isError":        {texts: []string{text}, images: []picture{good}, change: func(_ *trial, s *sent) { s.IsError = true }, want: "isError and a picture"},
		"another beginning":             {texts: []string{text}, images: []picture{good}, change: func(x *trial, _ *sent) { x.begins = "Status:" }, want: `want "Status:"`},
		"at the bound":                  {texts: []string{text}, images: []picture{good}, change: func(x *trial, _ *sent) { x.atMost = len(text) }},
		"past the bound":                {texts: []string{text}, images: []picture{good}, change: func(x *trial, _ *sent) { x.atMost = len(text) - 1 }, want: "more than"},
		"no answer":                     {texts: []string{text}, images: []picture{good}, change: func(_ *trial, s *sent) { s.Answered = false }, want: "sent no text"},
	} {
		t.Run(name, func(t *testing.T) {
			x := trial{begins: "Error (failed)", says: []string{"Next step:"}, pictures: 1}
			s := &sent{Answered: true, Texts: []string{text + "\n"}, Images: []picture{good}}
			if c.change != nil {
				c.change(&x, s)
			}
			as := form(plain)
			if c.as != nil {
				as = c.as
			}
			expect(t, x.check(exchange{Texts: c.texts, Images: c.images}, s, as), c.want)
		})
	}
}

// expect compares an error with a part of its text, "" for no error.
func expect(t *testing.T, err error, want string) {
	t.Helper()
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}
