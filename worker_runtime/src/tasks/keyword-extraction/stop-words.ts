/** Function words, written for this project: a keyword neither starts nor ends with one. */

const words = (list: string): ReadonlySet<string> => new Set(list.trim().split(/\s+/u));

export const STOP_WORDS: ReadonlyMap<string, ReadonlySet<string>> = new Map([
  ["en", words(`
    a about above after again against all almost along already also although always am among an and another any are
    aren't as at away back be became because become been before being below between both but by came can can't
    cannot come could couldn't did didn't do does doesn't doing don't done down during each either else enough even
    ever every few for from further get gets getting give gives go goes going got had hadn't has hasn't have haven't
    having he her here hers herself him himself his how however i i'd i'll i'm i've if in instead into is isn't it
    it's its itself just keep kept know last least less let like look looking looks made make makes many may me
    might mine more most much must my myself near need needed needs neither never no none nor not now of off often
    on once one only onto or other others our ours ourselves out over own per perhaps please put quite rather really
    same say says see seem seems several shall she should since so some something still such take takes than that
    that's the their theirs them themselves then there these they they're this those though through thus to together
    too toward under until up upon us use used uses using very via want was wasn't way we we're well were weren't
    what when where whether which while who whole whom whose why will with within without won't would yet you you're
    you've your yours yourself`)],
  ["de", words(`
    ab aber alle allem allen aller alles als also am an ander andere anderem anderen anderer anderes auch auf aus bei
    beim bin bis bist da dabei dadurch dafür dagegen daher damit dann daran darauf daraus darf darin darüber darum das
    dass davon dazu dein deine dem den denn der deren des deshalb dessen die dies diese diesem diesen dieser dieses
    doch dort du durch ein eine einem einen einer eines einige einmal er erst es etwa etwas euch euer für gegen habe
    haben hat hatte hatten her hier hin hinter ich ihm ihn ihnen ihr ihre ihrem ihren ihrer im immer in ins ist ja
    jede jedem jeden jeder jedes jene jetzt kann kein keine keinen können könnte machen man manche mehr mein meine
    mich mir mit muss müssen nach nicht nichts noch nun nur ob oder ohne schon sehr sein seine seinem seinen seiner
    seit sich sie sind so solche soll sollen sollte sondern sonst über um und uns unser unsere unter viel viele vom
    von vor war waren was weg weil weiter welche welcher wenn wer werde werden wie wieder will wir wird wo wollen
    worden wurde wurden während zu zum zur zwar zwischen`)],
  ["fr", words(`
    à afin ai ainsi alors après au aucun aucune aussi autre autres aux avait avant avec avoir beaucoup bien c'est car
    ce ceci cela celle celles celui cependant ces cet cette ceux chaque chez comme comment contre d'un d'une dans de
    depuis des deux doit donc dont du elle elles en encore entre est et était étaient été être eu fait faire fois font
    ici il ils j'ai je jusqu l'on la laquelle le lequel les leur leurs lors lorsque lui ma mais me même mes mieux moi
    moins mon n'a n'est ne ni non nos notre nous on ont ou où par parce pas pendant peu peut peuvent plus plusieurs
    pour pourquoi près qu'il qu'elle qu'un qu'une quand que quel quelle quelles quels qui quoi s'est sa sans se selon
    ses si son sont sous sur ta te tes toi ton tous tout toute toutes très trop tu un une vers voici vos votre vous y`)],
  ["es", words(`
    a al algo algunas algunos ante antes aquel aquella aquí así aún aunque bajo bien cada casi como cómo con contra
    cual cuál cuando cuándo de del desde donde dónde dos durante e el él ella ellas ellos en entre era eran es esa esas
    ese eso esos esta está estaba están estar estas este esto estos fue fueron ha había habían han hasta hay la las le
    les lo los luego más me mi mis mientras muchas mucho muchos muy nada ni no nos nosotros nuestra nuestro o os otra
    otras otro otros para pero poco por porque puede pueden pues que qué quien quién se sea según ser si sí sido sin
    sobre son su sus tal también tan tanto te tiene tienen toda todas todo todos tras tu tus un una unas uno unos y ya
    yo`)],
  ["it", words(`
    a abbiamo agli ai al alcuni alla alle allo anche ancora avere aveva c'è che chi ci cioè come con contro cosa così
    cui da dagli dai dal dalla dalle dallo degli dei del dell'altro della delle dello dentro di dopo dove due e è ed era
    erano essere fa fatto fino fra gli ha hai hanno ho i il in invece io l'altro la le lei lo loro lui ma me mentre mi
    mia mie miei mio molta molte molti molto ne negli nei nel nella nelle nello no noi non nostra nostro o ogni oppure
    per perché però più poco poi prima può qual quale quali quando quanto quella quelle quelli quello quest'anno questa
    queste questi questo qui quindi sarà se sei sempre senza si sia siamo sono sopra sotto stata stati stato su sua
    sue sugli sui sul sulla sulle sullo suo suoi tra troppo tu tua tue tuo tuoi tutta tutte tutti tutto un un'altra una
    uno verso vi voi vostra vostro`)],
  ["pt", words(`
    a à ainda algum alguma algumas alguns antes ao aos apenas após aquela aquele aqui as às assim até bem cada com como
    contra da das de dela dele deles depois desde dessa desse desta deste do dois dos durante e é ela elas ele eles em
    enquanto entre era eram essa essas esse esses esta está estão estar estas este estes eu foi foram há isso isto já
    lhe mais mas me mesmo meu meus minha muita muitas muito muitos na não nas nem nenhum no nos nós nossa nosso num
    numa o onde os ou outra outras outro outros para pela pelas pelo pelos pode podem por porém porque pouco quais
    qual quando quanto que quem são se seja sem sempre ser será seu seus si sido só sob sobre sua suas também tão te
    tem têm ter tinha toda todas todo todos tu um uma umas uns você vocês`)],
  ["nl", words(`
    aan achter al alle alleen alles als altijd andere ben bent bij binnen boven buiten daar daarna dan dat de deze die
    dit doen door dus een eens elk elke en er erg ergens geen geweest goed haar had hadden heb hebben heeft hem het hier
    hij hoe hun iemand iets ik in is ja je jij jou jouw jullie kan kon kunnen maar meer men met mij mijn moet moeten na
    naar naast niemand niet niets nog nu of om omdat onder ons onze ook op over per reeds samen sinds te tegen ten ter
    terwijl toch toen tot tussen uit uw van vanaf veel via voor vooral waar waarom wanneer want waren was wat we weer
    wel welke werd werden wie wij wil worden wordt zal ze zeer zelf zich zij zijn zo zoals zonder zou zouden`)],
  ["ru", words(`
    а без более больше будет будто бы был была были было быть в вам вас ведь весь вдруг во вот впрочем все всего всех
    всю вы где да даже два для до другой его ее её ей если есть еще ещё ж же за зачем здесь и из или им иногда их к
    каждый как какая какой когда конечно который которая которые которых кто ли лучше между меня мне много может можно
    мой моя мы на над надо наконец нас не него нее неё ней нельзя нет ни нибудь никогда ним них ничего но ну о об один
    он она они оно от очень перед по под после потом потому почти при про раз разве с сам свою себе себя сейчас со
    совсем так такой также там тебя тем теперь то тогда того тоже только том тот тут ты у уж уже хоть чего чей чем
    через что чтоб чтобы чуть эти этих это этого этой этом этот эту я`)],
  ["zh", words(`
    的 了 和 是 在 有 我 你 他 她 它 我们 你们 他们 她们 它们 这 那 这个 那个 这些 那些 这样 那样 这里 那里 与 及 以及 或
    或者 但 但是 而 而且 并 并且 也 都 就 还 又 很 太 更 最 不 没 没有 不是 会 能 可以 可能 要 想 应该 必须 被 把 对 对于 从
    到 向 往 由 为 为了 因为 所以 如果 虽然 然后 于是 之 其 其中 以 等 等等 着 过 地 得 吗 呢 吧 啊 上 下 中 里 内 外 前 后
    时 时候 个 一 一个 一些 一种 每 每个 各 某 几 什么 怎么 怎样 哪 哪里 谁 多少 多 少 将 已 已经 正在 只 只有 仅 再 让 使
    使用 用 通过 进行 需要 成为 作为 說 说 來 来 去 這 個 們 我們 他們 這個 沒有 會 對 從 為 與 還 後 時 裡 嗎 被 給 给`)],
  ["ja", words(`
    の に は を た が で て と し れ さ ある いる も する から な こと として い や れる など なっ ない この ため その あっ よう
    また もの という あり まで られ なる へ か だ これ によって により おり より による ず なり られる において ば なかっ なく
    しかし について せ だっ その後 できる それ う ので なお のみ でき き つ における および いう さらに でも ら たり その他
    に関する たち ます ん なら に対して 特に せる及び これら とき では にて ほか ながら うち そして とともに ただし かつて
    それぞれ または お ほど ものの に対する ほとんど と共に といった です とも ところ ここ そこ どこ だれ 私 あなた 彼 彼女
    まし ました ません でした され された して いた いて くだ ください すべて とても 的 方 時 中 後 前 者 人 年 月 日`)],
  ["ko", words(`
    그 그리고 그러나 그런 그것 이 이것 저 저것 것 수 등 및 또는 또 더 를 을 은 는 이 가 의 에 에서 와 과 도 로 으로
    하지만 그래서 때문에 위해 위한 대한 대해 있는 있다 없는 없다 하는 하다 한다 합니다 된다 되는 됩니다 입니다 있습니다
    없습니다 나 너 우리 저희 그들 모든 각 매우 아주 잘 못 안 다시 이미 아직 어떤 무엇 누구 언제 어디 왜 어떻게`)],
  ["th", words(`
    และ หรือ แต่ ที่ ซึ่ง อัน ใน บน ของ จาก ถึง กับ แก่ แด่ ต่อ เพื่อ โดย ตาม เป็น คือ มี อยู่ ได้ ให้ ไม่ ไม่ได้ จะ แล้ว กำลัง เคย ควร
    ต้อง อาจ ก็ นี้ นั้น โน้น นี่ นั่น ผม ฉัน ดิฉัน คุณ เขา เธอ เรา พวก มัน ว่า เมื่อ ถ้า หาก เพราะ ดังนั้น จึง มาก น้อย ทุก บาง หลาย
    แต่ละ อีก ด้วย กัน เอง ไป มา ขึ้น ลง ออก เข้า ไว้ ไหม ครับ ค่ะ คะ นะ การ ความ อย่าง ทำ ใช้ ทั้ง แห่ง ระหว่าง`)],
]);
