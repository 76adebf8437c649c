const pages=[...document.querySelectorAll("section")];
// How a text wraps depends on its fonts, and a little on the scale.
const shrink=()=>{
  for(const line of document.querySelectorAll(".katex-display")){
    line.style.fontSize="";
    for(let share=1;share>.4&&line.scrollWidth>line.clientWidth+1;share-=.04)line.style.fontSize=share+"em";
  }
  for(const fit of document.querySelectorAll(".fit")){
    fit.style.fontSize="";
    for(let size=26;size>11&&(fit.scrollHeight>fit.clientHeight+1||fit.scrollWidth>fit.clientWidth+1);size-=.5)
      fit.style.fontSize=size+"px";
  }
};
const shown=()=>{
  const away=pages.map(page=>Math.abs(page.getBoundingClientRect().top));
  return away.indexOf(Math.min(...away));
};
// A slide is 1280 by 720 pixels, so that it looks the same in every window and on paper; the window only enlarges it.
const enlarge=page=>{
  document.documentElement.style.setProperty("--scale",Math.min(innerWidth/1280,innerHeight/720));
  shrink();
  page.scrollIntoView();
};
enlarge(document.getElementById(location.hash.slice(1))||pages[0]);
addEventListener("resize",()=>enlarge(pages[shown()]));
addEventListener("load",()=>document.fonts.ready.then(()=>enlarge(pages[shown()])));
addEventListener("keydown",event=>{
  const step={ArrowRight:1,ArrowDown:1,PageDown:1," ":1,ArrowLeft:-1,ArrowUp:-1,PageUp:-1}[event.key];
  if(!step)return;
  event.preventDefault();
  pages[Math.max(0,Math.min(pages.length-1,shown()+step))].scrollIntoView();
});
