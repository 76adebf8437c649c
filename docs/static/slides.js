const pages=[...document.querySelectorAll("section")];
for(const line of document.querySelectorAll(".katex-display"))
  for(let share=1;share>.4&&line.scrollWidth>line.clientWidth+1;share-=.04)line.style.fontSize=share+"em";
for(const fit of document.querySelectorAll(".fit"))
  for(let size=26;size>11&&(fit.scrollHeight>fit.clientHeight+1||fit.scrollWidth>fit.clientWidth+1);size-=.5)
    fit.style.fontSize=size+"px";
addEventListener("keydown",event=>{
  const step={ArrowRight:1,ArrowDown:1,PageDown:1," ":1,ArrowLeft:-1,ArrowUp:-1,PageUp:-1}[event.key];
  if(!step)return;
  event.preventDefault();
  const now=Math.round(scrollY/innerHeight);
  pages[Math.max(0,Math.min(pages.length-1,now+step))].scrollIntoView();
});
